/* SPDX-License-Identifier: Apache-2.0 */
/* device/cuda.h in a build without CUDA: no device is usable. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "device/cuda.h"
#include "device/cuda_order.h"
#include "device/cuda_side.h"
#include "device/range.h"

static tpcomm_status_t no_cuda(void) {
    return tpc_error(TPCOMM_ERR_UNSUPPORTED, "this build of libtpcomm has no CUDA backend");
}

void tpc_cuda_probe(int32_t ordinal, tpc_cuda_facts_t *facts_p) {
    (void)ordinal;
    memset(facts_p, 0, sizeof *facts_p);
    snprintf(facts_p->reason, sizeof facts_p->reason, "this build of libtpcomm has no CUDA backend");
}

tpcomm_status_t tpc_cuda_order_new(const tpc_cuda_facts_t *facts, tpc_cuda_order_t **order_p) {
    (void)facts, (void)order_p;
    return no_cuda();
}

void tpc_cuda_order_free(tpc_cuda_order_t *order) {
    (void)order;
}

tpcomm_status_t tpc_cuda_order_enter(tpc_cuda_order_t *order, tpcomm_stream_t stream, tpc_cuda_call_t *call_p) {
    (void)order, (void)stream, (void)call_p;
    return no_cuda();
}

void tpc_cuda_order_leave(const tpc_cuda_call_t *call) {
    (void)call;
}

tpcomm_status_t tpc_cuda_order_follow(tpc_cuda_order_t *order, const tpc_cuda_call_t *call) {
    (void)order, (void)call;
    return TPCOMM_OK;
}

bool tpc_cuda_order_drain(tpc_cuda_order_t *order, uint32_t timeout_ms) {
    (void)order, (void)timeout_ms;
    return true;
}

int32_t tpc_cuda_peer_access(const tpc_cuda_facts_t *mine, const tpc_cuda_facts_t *theirs) {
    (void)mine, (void)theirs;
    return -1;
}

int32_t tpc_cuda_peer_atomics(const tpc_cuda_facts_t *mine, const tpc_cuda_facts_t *theirs) {
    (void)mine, (void)theirs;
    return -1;
}

tpcomm_status_t tpc_cuda_order_called(tpc_cuda_order_t *order, const tpc_cuda_call_t *call) {
    (void)order, (void)call;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_cuda_order_keep(const tpc_cuda_call_t *call, void (*gone)(void *arg), void *arg) {
    (void)call;
    gone(arg);
    return no_cuda();
}

tpcomm_status_t tpc_cuda_enter(const tpc_cuda_facts_t *facts, tpc_cuda_scope_t *scope_p) {
    (void)facts, (void)scope_p;
    return no_cuda();
}

void tpc_cuda_leave(tpc_cuda_scope_t scope) {
    (void)scope;
}

tpcomm_status_t tpc_cuda_side_new(size_t bytes, tpc_cuda_side_t **side_p) {
    (void)bytes, (void)side_p;
    return no_cuda();
}

void tpc_cuda_side_free(tpc_cuda_side_t *side) {
    (void)side;
}

void *tpc_cuda_side_buffer(const tpc_cuda_side_t *side) {
    (void)side;
    return NULL;
}

tpcomm_stream_t tpc_cuda_side_stream(const tpc_cuda_side_t *side) {
    (void)side;
    return NULL;
}

tpcomm_status_t tpc_cuda_side_put(tpc_cuda_side_t *side, const void *from, size_t bytes,
                                  const tpc_deadline_t *deadline) {
    (void)side, (void)from, (void)bytes, (void)deadline;
    return no_cuda();
}

tpcomm_status_t tpc_cuda_side_get(tpc_cuda_side_t *side, void *to, size_t bytes, const tpc_deadline_t *deadline) {
    (void)side, (void)to, (void)bytes, (void)deadline;
    return no_cuda();
}

tpcomm_status_t tpc_cuda_side_mark(tpc_cuda_side_t *side, tpcomm_stream_t stream, int word, uint32_t value) {
    (void)side, (void)stream, (void)word, (void)value;
    return no_cuda();
}

uint32_t tpc_cuda_side_word(const tpc_cuda_side_t *side, int word) {
    (void)side, (void)word;
    return 0;
}

void tpc_cuda_relax_thread(void) {}

bool tpc_cuda_is_primary(const tpc_cuda_facts_t *facts) {
    (void)facts;
    return false;
}

void tpc_cuda_forget_error(void) {}

tpcomm_status_t tpc_cuda_check_range(const tpc_cuda_facts_t *facts, const tpc_range_t *range) {
    (void)facts, (void)range;
    return no_cuda();
}

tpcomm_status_t tpc_cuda_check_stream(const tpc_cuda_facts_t *facts, tpcomm_stream_t stream) {
    (void)facts, (void)stream;
    return no_cuda();
}
