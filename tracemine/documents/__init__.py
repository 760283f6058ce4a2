"""A report as data: what is said of a scan, built once; report/ and tickets/ render it and decide nothing."""
