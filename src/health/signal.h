/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A word in shared memory that one rank posts and its peers wait for: all ordering between ranks on the cpu device is
 * here.
 *
 * Post is a release and wait is an acquire, so what was written before the post is read after the wait. A waiter spins
 * for a while, then sleeps on the word's futex; it announces itself in `sleepers` first, and the poster looks there
 * after it has posted (both sequentially consistent), so no wake is lost. Every wait watches the group's failure word,
 * the deadline and the caller's interrupt; a sleeper looks at them every 100 ms and is woken by a failure at once.
 */
#ifndef TPC_HEALTH_SIGNAL_H
#define TPC_HEALTH_SIGNAL_H

#include <stdatomic.h>
#include <stdint.h>

#include "health/failure.h"

typedef struct {
    _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
} tpc_signal_t;

/** How this rank waits; made once per communicator. */
typedef struct {
    const tpc_failure_t *failure;
    const _Atomic uint32_t *timeout_ms; /**< limit of each wait, in shared memory */
    uint32_t spin_us;                   /**< before sleeping; small where ranks outnumber processors */
    int32_t (*interrupted)(void *arg);  /**< may be NULL */
    void *interrupted_arg;
} tpc_wait_t;

void tpc_signal_wake(tpc_signal_t *signal);
tpcomm_status_t tpc_signal_wait_slow(tpc_signal_t *signal, uint32_t value, const tpc_wait_t *wait);

/** Set the word and wake its sleepers. */
static inline void tpc_signal_post(tpc_signal_t *signal, uint32_t value) {
    atomic_exchange_explicit(&signal->value, value, memory_order_seq_cst);
    if (atomic_load_explicit(&signal->sleepers, memory_order_seq_cst) != 0) tpc_signal_wake(signal);
}

/**
 * Wait until the word is value. Returns OK; TIMEOUT or INTERRUPTED, of which nothing is recorded or raised yet: the
 * caller knows whom it waits for; or the status of the failure in force.
 */
static inline tpcomm_status_t tpc_signal_wait(tpc_signal_t *signal, uint32_t value, const tpc_wait_t *wait) {
    if (atomic_load_explicit(&signal->value, memory_order_acquire) == value) return TPCOMM_OK;
    return tpc_signal_wait_slow(signal, value, wait);
}

#endif
