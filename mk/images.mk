# Guest images, from Debian packages: images/README.md. Built once; `make images-clean` to resolve the
# packages anew.
IMAGES := linux generic
IMAGE_FILES := vmlinuz initrd config version
IMAGE_COMMON := images/common.sh images/linux/init images/linux/debug-exit.c

define image_rule
$(IMAGE_FILES:%=build/images/$(1)/%) &: images/$(1)/build.sh $(IMAGE_COMMON) | deps
	@images/$(1)/build.sh
endef
$(foreach i,$(IMAGES),$(eval $(call image_rule,$(i))))

images: $(IMAGES:%=build/images/%/vmlinuz)

images-clean:
	rm -rf build/images/linux build/images/generic

.PHONY: images images-clean
