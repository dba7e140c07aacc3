"""What runs in the background of the owner: a worker submits commands when something is due; core decides."""
