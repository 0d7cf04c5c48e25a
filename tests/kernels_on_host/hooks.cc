/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that code compiled with -fsanitize=thread calls at each access. Kernels built so are linked to these
 * instead of the sanitizer's runtime, so that their plain accesses, too, are the harness' to order.
 */
#include <string.h>

#include "hostrun.h"

#define HERE __builtin_return_address(0)

#define ACCESSES(bytes)                                                                                                \
    void __tsan_read##bytes(void *at) {                                                                                \
        hostrun::plain_load(at, bytes, HERE);                                                                          \
    }                                                                                                                  \
    void __tsan_write##bytes(void *at) {                                                                               \
        hostrun::plain_store(at, bytes, HERE);                                                                         \
    }                                                                                                                  \
    void __tsan_unaligned_read##bytes(void *at) {                                                                      \
        hostrun::plain_load(at, bytes, HERE);                                                                          \
    }                                                                                                                  \
    void __tsan_unaligned_write##bytes(void *at) {                                                                     \
        hostrun::plain_store(at, bytes, HERE);                                                                         \
    }

extern "C" {
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

void __tsan_init(void) {}

/* Older compilers call memcpy and memset themselves; objcopy renames that in kernel objects. */
void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
    for (size_t done = 0; done < bytes; done += 16) {
        size_t piece = bytes - done < 16 ? bytes - done : 16;
        char value[16];
        hostrun::plain_load((const char *)from + done, (int)piece, HERE);
        memcpy(value, (const char *)from + done, piece);
        hostrun::plain_store((char *)to + done, (int)piece, HERE);
        memcpy((char *)to + done, value, piece);
    }
    return to;
}

void *__tsan_memset(void *to, int value, size_t bytes) {
    for (size_t done = 0; done < bytes; done += 16) {
        size_t piece = bytes - done < 16 ? bytes - done : 16;
        hostrun::plain_store((char *)to + done, (int)piece, HERE);
        memset((char *)to + done, value, piece);
    }
    return to;
}
}
