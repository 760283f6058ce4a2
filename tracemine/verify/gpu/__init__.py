"""What runs on a GPU and is pasted into reproductions: is it right there, how long does it take."""
