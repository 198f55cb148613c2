"""Tables, figures and the page, from stored results alone."""
