"""Published measurements of training runs, and what the estimates say of them."""
