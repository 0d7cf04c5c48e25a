/* SPDX-License-Identifier: Apache-2.0 */
#include "health/signal.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define CHECK_EVERY 64u        /* spins between looks at the failure word and the clock */
#define SLICE_NS    100000000u /* longest sleep between looks: config.interrupted is asked this often */

static inline void spin_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

void tpc_signal_wake(tpc_signal_t *signal) {
    syscall(SYS_futex, (uint32_t *)(void *)&signal->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Sleep while the word is seen, at most ns. Why it woke does not matter: the caller looks again. */
static void sleep_on(tpc_signal_t *signal, uint32_t seen, uint64_t ns) {
    struct timespec limit = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    syscall(SYS_futex, (uint32_t *)(void *)&signal->value, FUTEX_WAIT, seen, &limit, NULL, 0);
}

tpcomm_status_t tpc_signal_wait_slow(tpc_signal_t *signal, uint32_t value, const tpc_wait_t *wait) {
    uint64_t start = tpc_clock_ns(), looked = start, asked = start, stopped = 0;
    uint64_t spin_until = start + (uint64_t)wait->spin_us * 1000u;
    for (;;) {
        for (uint32_t i = 0; i < CHECK_EVERY; i++) {
            if (atomic_load_explicit(&signal->value, memory_order_acquire) == value) return TPCOMM_OK;
            spin_pause();
        }
        tpcomm_status_t failed = tpc_failure_status(wait->failure);
        /* What has arrived has arrived, whatever broke the group after it. */
        if (failed != TPCOMM_OK)
            return atomic_load_explicit(&signal->value, memory_order_acquire) == value ? TPCOMM_OK : failed;
        uint64_t now = tpc_clock_ns();
        /* A stopped process must not find its peers late when it goes on (DESIGN 8): the gap does not count. */
        if (now - looked > TPC_STOPPED_GAP_NS) stopped += now - looked;
        looked = now;
        uint64_t limit = (uint64_t)atomic_load_explicit(wait->timeout_ms, memory_order_relaxed) * 1000000u;
        uint64_t waited = now - start - stopped;
        if (waited >= limit) /* and however long this thread did not run since it looked */
            return atomic_load_explicit(&signal->value, memory_order_acquire) == value ? TPCOMM_OK : TPCOMM_ERR_TIMEOUT;
        if (wait->interrupted != NULL && now - asked >= SLICE_NS) {
            asked = now;
            if (wait->interrupted(wait->interrupted_arg) != 0) return TPCOMM_ERR_INTERRUPTED;
        }
        if (now < spin_until) continue;

        atomic_fetch_add_explicit(&signal->sleepers, 1, memory_order_seq_cst);
        uint32_t seen = atomic_load_explicit(&signal->value, memory_order_seq_cst);
        if (seen != value && tpc_failure_status(wait->failure) == TPCOMM_OK)
            sleep_on(signal, seen, limit - waited < SLICE_NS ? limit - waited : SLICE_NS);
        atomic_fetch_sub_explicit(&signal->sleepers, 1, memory_order_seq_cst);
    }
}
