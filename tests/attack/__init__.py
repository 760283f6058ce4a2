"""Attacks on every reader and writer that takes a path, and what must hold of each, whatever the attack is.

    pytest tests/attack                      some hundred attacks of each kind, in about a minute
    pytest tests/attack --long               the same tables, and many times as many random ones
    python -m tests.attack                   the first, and the table of what was tried
    python -m tests.attack timeline 17       one random attack again, by its kind and seed; its folder is kept

An attack is a folder with an input made by a random change, or by hand, and a command line. `harness.py` runs it in a
process of its own and judges it (`judge`): it ends in time, with an exit code that fits, without a traceback; an error
is a line; no character that a terminal acts on is printed; nothing is written but what was named; nothing is executed.

What strangers can try beside that, and the tests that hold it; test_threats.py asserts that they are there.

| threat | held by |
|---|---|
| a ticket service's answer that is packed, to take memory | attack/test_answers: what_is_packed_is_not_unpacked |
| one of another shape or depth | attack/test_answers: an_answer_of_any_shape_is_an_error_in_a_line_or_taken |
| its refusal of another shape | attack/test_answers: a_refusal_of_any_shape_is_an_error_in_a_line |
| its error that repeats a part of the token | attack/test_answers: no_part_of_a_token_that_a_service_repeats_is_shown |
| its key of another project, looked for without end | attack/test_answers: a_key_of_another_project_is_told_at_once |
| an issue with our mark, of whoever may open one | attack/test_answers: what_a_stranger_wrote_is_no_ticket |
| an older one, so that ours is a duplicate | attack/test_answers: an_older_issue_of_a_stranger_withdraws_none_of_ours |
| a comment with our mark | attack/test_answers: a_strangers_comment_does_not_stand_for_ours |
| a mark's last line that is deleted | attack/test_answers: what_stands_below_a_deleted_end_is_kept |
| a data set that is damaged, a bomb or a pipe | attack/test_dataset: a_data_set_that_is_damaged_is_told_in_a_line |
| links in a data set, to write elsewhere | attack/test_dataset: nothing_is_written_through_a_link |
| its index that lies | attack/test_dataset: an_index_that_names_a_trace_that_was_not_scanned_counts_for_nothing |
| a trace whose name is no text | attack/test_dataset: a_folder_whose_name_is_no_text_has_its_row |
| a pipe or a device among traces and rules | attack/test_dataset: nothing_is_waited_for |
| an argument without bounds | attack/test_dataset: an_argument_without_bounds_is_told_in_a_line |
| a pattern that takes for ever | attack/test_dataset: a_pattern_of_labels_takes_no_time |
| numbers of thousands of digits, in a file | cli/test_settings: a_number_of_thousands_of_digits_is_no_toml |
| the same, in the environment | cli/test_settings: what_is_no_integer_of_a_variable_is_a_line |
| a file that is swapped for a link once it was checked | attack/test_swapped: what_lies_outside_is_not_read |
| a settings file that opens a gate | cli/test_settings: what_a_file_sets_that_decides_a_gate_is_said |
| half a character in an agent's argument | mcp/test_served: half_a_character_is_told_of_its_argument |
| modules beside a trace, and `python -m` | attack/test_surroundings: nor_is_it_by_python_m |
| workers that outlive a fleet | attack/test_waiting: a_worker_that_is_still_loaded_does_not_outlive_a_fleet |
| standard input without an end | attack/test_waiting: standard_input_has_a_bound |
| a binary report that ends NVIDIA's library | counters/test_binary: what_the_package_does_to_its_process_is_a_line |
"""
