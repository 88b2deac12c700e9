"""The files of deploy/, as far as this machine can try them: container, compose, systemd, monitoring."""
