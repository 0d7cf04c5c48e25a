/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <string.h>

/* X(public constant, text): the class of the cause, then what to check first. */
#define STATUS_LIST(X)                                                                                                 \
    X(TPCOMM_OK, "The call succeeded.")                                                                                \
    X(TPCOMM_ERR_INVALID_ARG, "An argument of the call is out of its range or contradicts another: check the "         \
                              "argument that tpcomm_last_error() names.")                                              \
    X(TPCOMM_ERR_INVALID_STATE, "The call is not allowed now, such as after tpcomm_finalize or in a forked child: "    \
                                "check the order of the calls in this process.")                                       \
    X(TPCOMM_ERR_UNSUPPORTED, "This library, build or machine cannot do what was asked: check in tpcomm_last_error() " \
                              "what is missing.")                                                                      \
    X(TPCOMM_ERR_NO_MEMORY,                                                                                            \
      "Memory or descriptors ran out in this process: check its limits and what else uses them.")                      \
    X(TPCOMM_ERR_TOO_SMALL, "The caller's buffer, or the memory of the forced path, is too small: check both sizes "   \
                            "in tpcomm_last_error().")                                                                 \
    X(TPCOMM_ERR_BUSY, "Another thread is inside this communicator: check which threads share it.")                    \
    X(TPCOMM_ERR_VERSION, "The caller was compiled against a newer tpcomm.h and uses what it added: compare "          \
                          "tpcomm_version() with TPCOMM_VERSION_NUMBER.")                                              \
    X(TPCOMM_ERR_CONFIG, "A variable, a config field or the launcher's setting is not valid: check the one that "      \
                         "tpcomm_last_error() names.")                                                                 \
    X(TPCOMM_ERR_PARSE, "A file is not what it should be: check it at the place that tpcomm_last_error() names.")      \
    X(TPCOMM_ERR_INTERRUPTED, "The caller's own interrupted function asked to stop the wait: check why it did, such "  \
                              "as Ctrl-C.")                                                                            \
    X(TPCOMM_ERR_IO, "The operating system refused a file or socket operation: check the path or address and the "     \
                     "reason in tpcomm_last_error().")                                                                 \
    X(TPCOMM_ERR_ABORTED, "The group was ended on purpose, by tpcomm_abort or by a rank that destroyed its "           \
                          "communicator: check why the rank in tpcomm_last_error() did so.")                           \
    X(TPCOMM_ERR_PEER_DIED, "A process of the group ended: check the exit code and the output of the rank that "       \
                            "tpcomm_last_error() names.")                                                              \
    X(TPCOMM_ERR_MISMATCH, "The ranks made different calls: compare the two calls that tpcomm_last_error() names.")    \
    X(TPCOMM_ERR_TIMEOUT, "Ranks did not arrive in time: check what the ranks named in tpcomm_last_error() were "      \
                          "doing instead.")                                                                            \
    X(TPCOMM_ERR_BACKEND, "A communication library, or the caller's own exchange function, failed: check its message " \
                          "in tpcomm_last_error().")                                                                   \
    X(TPCOMM_ERR_PEER_FAILED, "Another rank failed: check that rank, whose reason is in tpcomm_last_error().")         \
    X(TPCOMM_ERR_CONFIG_MISMATCH, "The ranks are set up differently: compare the two values in tpcomm_last_error().")  \
    X(TPCOMM_ERR_DUPLICATE_DEVICE, "Two ranks were given the same device: check the device choice of the ranks that "  \
                                   "tpcomm_last_error() names.")                                                       \
    X(TPCOMM_ERR_NO_TRANSPORT, "No way was found to carry data between the ranks of this group: check each way's "     \
                               "reason in tpcomm_last_error().")                                                       \
    X(TPCOMM_ERR_ADDR_IN_USE, "The rendezvous address is taken, or this job already runs: check which process holds "  \
                              "the address in tpcomm_last_error().")                                                   \
    X(TPCOMM_ERR_AUTH, "A peer did not prove that it belongs to this job: check that all ranks were given the same "   \
                       "secret, and that nothing changes their messages on the way.")                                  \
    X(TPCOMM_ERR_OVERLAP, "Two calls used one communicator at the same time on different streams: check the order of " \
                          "the streams.")                                                                              \
    X(TPCOMM_ERR_DEVICE, "The device or its driver failed, which ends its use in this process: check the driver's "    \
                         "message in tpcomm_last_error().")

const char *tpcomm_status_name(tpcomm_status_t status) {
    switch (status) {
#define NAME(constant, text)                                                                                           \
    case constant:                                                                                                     \
        return #constant;
        STATUS_LIST(NAME)
#undef NAME
    default:
        return "TPCOMM_ERR_?";
    }
}

const char *tpcomm_status_text(tpcomm_status_t status) {
    switch (status) {
#define TEXT(constant, text)                                                                                           \
    case constant:                                                                                                     \
        return text;
        STATUS_LIST(TEXT)
#undef TEXT
    default:
        return "This number is no status of this version: check that it came from a tpcomm call.";
    }
}

int32_t tpcomm_version(void) {
    return TPCOMM_VERSION_NUMBER;
}

#define NAME(constant, name)                                                                                           \
    case constant:                                                                                                     \
        return name;
#define DTYPE_NAME(constant, name, size, is_float)                                                                     \
    case constant:                                                                                                     \
        return name;
#define PARSE(constant, constant_name)                                                                                 \
    if (strcmp(name, constant_name) == 0) {                                                                            \
        *value_p = constant;                                                                                           \
        return true;                                                                                                   \
    }
#define DTYPE_PARSE(constant, constant_name, size, is_float) PARSE(constant, constant_name)

const char *tpcomm_dtype_name(tpcomm_dtype_t dtype) {
    switch (dtype) {
        TPC_DTYPE_LIST(DTYPE_NAME)
    default:
        return "?";
    }
}

bool tpc_dtype_parse(const char *name, tpcomm_dtype_t *value_p) {
    TPC_DTYPE_LIST(DTYPE_PARSE)
    return false;
}

const char *tpcomm_op_name(tpcomm_op_t op) {
    switch (op) {
        TPC_OP_LIST(NAME)
    default:
        return "?";
    }
}

bool tpc_op_parse(const char *name, tpcomm_op_t *value_p) {
    TPC_OP_LIST(PARSE)
    return false;
}

const char *tpcomm_coll_name(tpcomm_coll_t coll) {
    switch (coll) {
        TPC_COLL_LIST(NAME)
    default:
        return "?";
    }
}

bool tpc_coll_parse(const char *name, tpcomm_coll_t *value_p) {
    TPC_COLL_LIST(PARSE)
    return false;
}

const char *tpcomm_path_name(tpcomm_path_t path) {
    switch (path) {
        TPC_PATH_LIST(NAME)
    default:
        return "?";
    }
}

bool tpc_path_parse(const char *name, tpcomm_path_t *value_p) {
    TPC_PATH_LIST(PARSE)
    return false;
}

size_t tpcomm_dtype_size(tpcomm_dtype_t dtype) {
    switch (dtype) {
#define SIZE(constant, name, size, is_float)                                                                           \
    case constant:                                                                                                     \
        return size;
        TPC_DTYPE_LIST(SIZE)
#undef SIZE
    default:
        return 0;
    }
}

bool tpc_dtype_is_float(tpcomm_dtype_t dtype) {
    switch (dtype) {
#define IS_FLOAT(constant, name, size, is_float)                                                                       \
    case constant:                                                                                                     \
        return is_float;
        TPC_DTYPE_LIST(IS_FLOAT)
#undef IS_FLOAT
    default:
        return false;
    }
}

bool tpc_reduction_defined(tpcomm_dtype_t dtype, tpcomm_op_t op) {
    if (dtype == TPCOMM_F8_E4M3 || dtype == TPCOMM_F8_E5M2) return false;
    if (tpcomm_dtype_size(dtype) == 0 || op < TPCOMM_SUM || op > TPCOMM_PROD) return false;
    return op != TPCOMM_AVG || tpc_dtype_is_float(dtype);
}
