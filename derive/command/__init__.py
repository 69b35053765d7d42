"""The command line: projects, the folder of modules, worker processes, and output."""
