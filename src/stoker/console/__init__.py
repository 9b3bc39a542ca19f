"""The console: pages in the browser about runs, their numbers, logs and files.
A client of the server like the command line."""
