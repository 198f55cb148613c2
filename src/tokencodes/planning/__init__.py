"""What a config will cost, before any job: plan, resources, corpus estimates."""
