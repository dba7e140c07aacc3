"""What we need from the operating system in more than one layer: durable files and child processes."""
