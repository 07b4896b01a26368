# `make demo`: a real boot recorded, replayed, verified (tests/demo.sh); all that README's examples use
# next is built too, but for disks with systems (their own lines say how) and windows (`make`).
demo: deps-demo
	@$(MAKE) --no-print-directory -j$(JOBS) MODE=rel build/reprise build/reprise-net build/reprise-fs build/reprise-gpu \
		build/images/linux/vmlinuz build/images/generic/vmlinuz
	@tests/demo.sh

.PHONY: demo
