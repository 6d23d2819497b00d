"""What several commands share: options, output, the configuration file, the gateway that runs, the first start."""
