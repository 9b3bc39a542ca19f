"""Hold compute on a host: start, poll, stop, enter, capacity. Every back end starts the same agent;
only the way differs."""
