"""Tables, pictures and traces."""
