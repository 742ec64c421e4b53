"""The way from a log to a data folder as one pipeline of Apache Beam: the functions of `preparation` on parts of it."""
