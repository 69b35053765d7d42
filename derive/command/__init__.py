"""What the command line is made of: projects, the folder of modules, processes, printing."""
