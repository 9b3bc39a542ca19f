"""The server: HTTP on a unix socket. api (the routes), asked (what a request asks), streams and relay
(answers that go on), process."""
