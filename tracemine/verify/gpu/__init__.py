"""What runs on a GPU and is pasted into reproductions, which have torch alone: is it right, how long does it take."""
