# `make demo`: a real boot recorded, replayed, verified (images/demo.sh); all that README's examples use
# next is built too, but for disks with systems (their own lines say how) and windows (`make`).
demo: deps-demo
	@$(MAKE) --no-print-directory -j$(JOBS) MODE=rel build/reprise build/reprise-net build/reprise-fs build/reprise-gpu \
		build/images/linux/vmlinuz build/images/generic/vmlinuz
	@build/reprise demo -o build/demo

.PHONY: demo
