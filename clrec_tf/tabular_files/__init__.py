"""Files of rows, whatever their form, as lazy frames of strings, and the values in their cells."""
