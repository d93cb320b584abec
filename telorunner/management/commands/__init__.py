"""serve, runengine and runcluster."""
