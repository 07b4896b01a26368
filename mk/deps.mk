# `make deps`: installs the Debian packages that are missing (images/deps.sh has the list).
deps:
	@images/deps.sh

.PHONY: deps
