/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/abi.h"

#include <string.h>

#include "base/error.h"

/* Larger than any struct of this API will ever be: a struct_size beyond it was never set. */
#define LARGEST_STRUCT 65536u

static tpcomm_status_t read_size(const char *name, const void *theirs, size_t *size_p) {
    uint32_t size = 0;
    if (theirs == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s is NULL", name);
    memcpy(&size, theirs, sizeof size);
    if (size < sizeof size || size > LARGEST_STRUCT)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s->struct_size is %u; set it to sizeof(%s_t)", name, size, name);
    *size_p = size;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_struct_in(const char *name, const void *theirs, void *known, size_t known_bytes) {
    size_t size = 0;
    tpcomm_status_t status = read_size(name, theirs, &size);
    if (status != TPCOMM_OK) return status;
    const unsigned char *bytes = theirs;
    for (size_t i = known_bytes; i < size; i++)
        if (bytes[i] != 0)
            return tpc_error(
                TPCOMM_ERR_VERSION,
                "%s has %zu bytes with something in byte %zu, but this library (%d.%d.%d) knows only %zu: the caller "
                "was compiled against a newer tpcomm.h",
                name, size, i, TPCOMM_VERSION_MAJOR, TPCOMM_VERSION_MINOR, TPCOMM_VERSION_PATCH, known_bytes);
    memcpy(known, theirs, size < known_bytes ? size : known_bytes);
    return TPCOMM_OK;
}

tpcomm_status_t tpc_struct_out(const char *name, const void *known, size_t known_bytes, void *theirs) {
    size_t size = 0;
    tpcomm_status_t status = read_size(name, theirs, &size);
    if (status != TPCOMM_OK) return status;
    /* Byte by byte: the sizes are bounded, which the compiler cannot see. struct_size stays the caller's. */
    unsigned char *to = theirs;
    for (size_t i = sizeof(uint32_t); i < size; i++) to[i] = i < known_bytes ? ((const unsigned char *)known)[i] : 0;
    return TPCOMM_OK;
}
