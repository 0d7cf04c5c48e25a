/* SPDX-License-Identifier: Apache-2.0 */
/* The scenarios. */
#include "cases.h"

#include <string.h>

#include <algorithm>

#include "group.h"

using namespace hostrun;

static const int sizes[] = {2, 3, 4, 5, 8};
static const size_t slots[] = {64, 256, 512};

/* Of a seed, a stream of numbers that the scheduler does not share. */
static random_t numbers(const config_t &config) {
    return random_t(config.seed * 0x9FB21C651E98DF25u + 1);
}

static uint32_t draw_epoch(random_t &random) {
    return random.chance(.3) ? 0xFFFFFFF0u + random.below(14) : (uint32_t)(random.bits() >> 1);
}

/* Call k+1 begins on a rank only when call k-1 has ended on every rank. */
static void forbid_running_ahead(int size) {
    on_launch_start([size](int rank, int number) -> std::string {
        for (int r = 0; r < size; r++)
            if (launches_ended(r) < number - 1)
                return "rank " + std::to_string(rank) + " begins call " + std::to_string(number) + " while rank " +
                       std::to_string(r) + " is in call " + std::to_string(launches_ended(r));
        return "";
    });
}

/* All calls are right, and nothing is left behind. */
static std::string run_healthy(const group_t &group) {
    forbid_running_ahead(group.size);
    result_t result = run();
    if (result.outcome != FINISHED) return result.message;
    std::string wrong = group.check_results(0, group.calls());
    return wrong.empty() ? group.check_rest() : wrong;
}

/* Check that every reduction of every dtype gives the cpu device's bits. */
static std::string dtypes(config_t &config) {
    random_t random = numbers(config);
    int size = sizes[config.seed % 5];
    begin(size, config);
    group_t group(size, 256, draw_epoch(random), random);
    for (int dtype = TPCOMM_F32; dtype <= TPCOMM_F64; dtype++)
        for (int op = TPCOMM_SUM; op <= TPCOMM_PROD; op++) {
            bool integer = dtype > TPCOMM_BF16 && dtype != TPCOMM_F64;
            if (integer && op == TPCOMM_AVG) continue;
            call_t call = {TPCOMM_ALL_REDUCE, dtype, op, 0, (size_t)random.between(0, 12), random.chance(.5)};
            if (random.chance(.3)) call.coll = TPCOMM_REDUCE_SCATTER, call.twoshot = false;
            group.make(call);
        }
    return run_healthy(group);
}

/* A group with a ring; each block's threads are three warps, so there are few blocks. */
static tpc_ar_ring_t draw_ring(random_t &random) {
    static const uint32_t pieces[] = {16, 64, 80, 256, 512};
    return {(uint32_t)random.between(1, 3), random.pick(pieces)};
}

static std::string mixed_calls(config_t &config, payload_t payload, bool wrap) {
    random_t random = numbers(config);
    int size = random.pick(sizes);
    if (random.chance(.2)) config.slow_rank = random.between(0, size - 1);
    begin(size, config);
    bool rings = random.chance(.1);
    group_t group(size, random.pick(slots), wrap ? 0xFFFFFFF8u + random.below(6) : draw_epoch(random), random,
                  rings ? draw_ring(random) : tpc_ar_ring_t());
    int calls = random.between(wrap ? 7 : 2, 12);
    for (int i = 0; i < calls; i++)
        group.make(rings && random.chance(.3) ? group.draw_ring_call() : group.draw_call(), payload);
    return run_healthy(group);
}

/* Check any collectives, dtypes, sizes, grids, alignments, one after the other, with slow ranks, blocks and threads. */
static std::string mixed(config_t &config) {
    return mixed_calls(config, RANDOM_BITS, false);
}

/* Check the same while the epoch goes over its wrap. */
static std::string wrap(config_t &config) {
    return mixed_calls(config, RANDOM_BITS, true);
}

/* Check payloads that look like what the protocol uses: EMPTY, epochs, NaNs. */
static std::string payloads(config_t &config) {
    return mixed_calls(config, HOSTILE, config.seed % 2 != 0);
}

/* Check that a root, which waits for no data, does not run away from a slow rank: 100 broadcasts, then all_reduce. */
static std::string broadcasts(config_t &config) {
    random_t random = numbers(config);
    int size = random.pick(sizes), root = random.between(0, size - 1);
    config.slow_rank = (root + 1) % size;
    begin(size, config);
    group_t group(size, 64, draw_epoch(random), random);
    for (int i = 0; i < 100; i++) {
        call_t call = {TPCOMM_BROADCAST, TPCOMM_U8, TPCOMM_SUM, root, (size_t)random.between(1, 32), false};
        group.make(call);
    }
    call_t last = {TPCOMM_ALL_REDUCE, TPCOMM_BF16, TPCOMM_SUM, 0, 32, false};
    group.make(last);
    return run_healthy(group);
}

/* ------------------------------------------------------------------ the ring */

/* Check messages of any number of chunks through the ring, among other calls; flags count over their wrap. */
static std::string ring(config_t &config) {
    random_t random = numbers(config);
    int size = random.pick(sizes);
    if (random.chance(.2)) config.slow_rank = random.between(0, size - 1);
    begin(size, config);
    tpc_ar_ring_t ring = draw_ring(random);
    group_t group(size, 64, draw_epoch(random), random, ring);
    payload_t payload = random.chance(.3) ? HOSTILE : RANDOM_BITS;
    for (int i = random.between(1, 5); i > 0; i--)
        group.make(random.chance(.8) ? group.draw_ring_call() : group.draw_call(), payload);
    return run_healthy(group);
}

/* Check groups of more ranks than the fast kernels serve, by every form. */
static std::string many(config_t &config) {
    random_t random = numbers(config);
    int size = random.between(9, 16);
    if (random.chance(.2)) config.slow_rank = random.between(0, size - 1);
    begin(size, config);
    tpc_ar_ring_t ring = {(uint32_t)random.between(1, 2), 64};
    group_t group(size, 64, draw_epoch(random), random, ring);
    for (int i = random.between(1, 4); i > 0; i--)
        group.make(random.chance(.4) ? group.draw_ring_call() : group.draw_call());
    return run_healthy(group);
}

/* ------------------------------------------------------------------ waits */

/* What a rank has noted of its waits: "" if that is as many calls as there were, of which at most `lasts` name
 * somebody, the late rank at least once; and if the host has a copy. */
static std::string check_waits(const group_t &group, int rank, int late, uint64_t late_ns) {
    const tpc_ar_waits_t *waits = group.waits(rank);
    uint64_t calls = 0, wait_ns = 0, lasts = 0;
    for (int i = 0; i < TPC_AR_WAITS_PATHS; i++) calls += waits->path[i].calls, wait_ns += waits->path[i].wait_ns;
    for (int i = 0; i < TPC_AR_MAX_RANKS; i++) lasts += waits->last[i];
    std::string who = "rank " + std::to_string(rank) + " has noted ";
    if (memcmp(waits, &group.report[(size_t)rank]->waits, sizeof *waits) != 0) return who + "other than the host sees";
    if (group.header(rank)->notes_waits == 0) return calls + wait_ns + lasts == 0 ? "" : who + "what it should not";
    if (calls != group.calls()) return who + std::to_string(calls) + " calls of " + std::to_string(group.calls());
    if (lasts > calls) return who + std::to_string(lasts) + " that came last in " + std::to_string(calls) + " calls";
    if (waits->last[late] == 0) return who + "nothing of rank " + std::to_string(late) + ", which was late";
    if (rank == late && wait_ns >= late_ns) return who + std::to_string(wait_ns) + " ns, though others waited for it";
    if (rank != late && wait_ns < late_ns) return who + std::to_string(wait_ns) + " ns, but has waited longer";
    return "";
}

/* Check that ranks which note their waits know how long they have waited and for whom, a late rank that it was late,
 * and that others note nothing. */
static std::string waits(config_t &config) {
    static const uint64_t lates_ns[] = {100000000, 3000000000, 20000000000};
    random_t random = numbers(config);
    int size = random.pick(sizes), late = random.between(0, size - 1), calls = random.between(1, 4);
    uint64_t late_ns = random.pick(lates_ns);
    config.time_passes = true;
    begin(size, config);
    group_t group(size, random.pick(slots), draw_epoch(random), random);
    for (int r = 0; r < size; r++) {
        group.header(r)->timeout_ms = 60000;
        if (random.chance(.8)) group.note_waits(r);
    }
    int when = random.between(0, calls - 1);
    for (int i = 0; i < calls; i++) {
        group.make(group.draw_call());
        if (i == when) delay_last(late, late_ns + 1000000000);
    }
    std::string wrong = run_healthy(group);
    for (int r = 0; r < size && wrong.empty(); r++) wrong = check_waits(group, r, late, late_ns);
    return wrong;
}

/* ------------------------------------------------------------------ failures */

static const uint32_t TIMEOUT = (uint32_t)-TPCOMM_ERR_TIMEOUT, MISMATCH = (uint32_t)-TPCOMM_ERR_MISMATCH,
                      ABORTED = (uint32_t)-TPCOMM_ERR_ABORTED, OVERLAP = (uint32_t)-TPCOMM_ERR_OVERLAP;

/* The rank's failure word names a status and a rank, and that rank's report says so too. */
static std::string check_failure(const group_t &group, int rank, uint32_t status) {
    uint64_t word = group.header(rank)->fail;
    int origin = (int)(word >> 32) - 1;
    if ((uint32_t)word != status)
        return "rank " + std::to_string(rank) + " failed with " + std::to_string((uint32_t)word) + ", want " +
               std::to_string(status);
    if (origin < 0 || origin >= group.size || group.report[(size_t)origin]->word != word)
        return "rank " + std::to_string(rank) + " names rank " + std::to_string(origin) +
               ", which reports no such failure";
    return "";
}

static const uint64_t BEAT_NS = 100000000, AWAKE_NS = 3600000000000, LONGEST_STOP_MS = 10000;

static call_t draw_call(group_t &group, bool rings) {
    return rings ? group.draw_ring_call() : group.draw_call();
}

/* The hosts' pulse (health/pulse.h), as far as kernels see it. Awake for an hour when the run begins; stopped, all of
 * them, between two moments of the device's clock. */
static void beat(const group_t &group, uint32_t base_ms, uint64_t stop_ns = UINT64_MAX,
                 uint64_t resume_ns = UINT64_MAX) {
    uint64_t last_ns = 0, since_ns = 0;
    const std::vector<uint64_t *> words = group.host_pulse;
    auto hosts = [=](uint64_t now_ns) mutable {
        if ((now_ns >= stop_ns && now_ns < resume_ns) || now_ns - last_ns < BEAT_NS) return;
        if (now_ns - last_ns > 2000000000) since_ns = now_ns + AWAKE_NS;
        last_ns = now_ns;
        uint32_t last = (uint32_t)((last_ns + AWAKE_NS) / 1000000), since = (uint32_t)(since_ns / 1000000);
        for (uint64_t *word : words) host_store(word, (uint64_t)(base_ms + last) << 32 | (base_ms + since));
    };
    for (uint64_t *word : group.host_pulse) *word = (uint64_t)(uint32_t)(base_ms + AWAKE_NS / 1000000) << 32 | base_ms;
    on_clock(hosts);
}

/* Ranks whose peer is missing (or two of them), or comes too late, end by the deadline, say who it was, and get through
 * their queue. */
static std::string missing_calls(config_t &config, bool rings) {
    static const uint32_t timeouts[] = {100, 400, 1600, 6000};
    random_t random = numbers(config);
    int size = random.pick(sizes), absent = random.between(0, size - 1), healthy = random.between(0, 3),
        after = random.between(0, 3);
    bool late = random.chance(.5);
    int also = !late && size > 3 && random.chance(.5) ? (absent + 1) % size : absent;
    config.time_passes = true;
    begin(size, config);
    group_t group(size, random.pick(slots), draw_epoch(random), random, rings ? draw_ring(random) : tpc_ar_ring_t());
    bool beats = random.chance(.5); /* the job is awake all the time, of which only this is different */
    if (beats) beat(group, (uint32_t)random.bits());
    uint64_t soonest_ms = UINT64_MAX;
    for (int r = 0; r < size; r++) {
        uint32_t *timeout_ms = &group.header(r)->timeout_ms, limit = random.pick(timeouts);
        if (r != absent && r != also) soonest_ms = std::min<uint64_t>(soonest_ms, limit);
        *timeout_ms = limit;
        if (random.chance(.3)) { /* a wait obeys a limit that is set while it lasts */
            *timeout_ms = 60000;
            at_step((int64_t)random.below(1u << random.between(4, 16)), [=] { *timeout_ms = limit; });
        }
    }
    for (int r = 0; r < size; r++)
        if (random.chance(.1)) group.note_waits(r);
    for (int i = 0; i < healthy; i++) group.make(draw_call(group, rings));
    uint64_t arrival_ns = (soonest_ms + 1000) * 1000000;
    for (int i = 0; i <= after; i++) {
        std::vector<call_t> calls((size_t)size, draw_call(group, rings));
        if (!late) calls[(size_t)absent].count = calls[(size_t)also].count = SIZE_MAX;
        group.make_each(calls);
        if (late && i == 0) delay_last(absent, arrival_ns);
    }
    result_t result = run();
    if (result.outcome != FINISHED) return result.message;
    std::string wrong = group.check_results(0, (size_t)healthy);
    for (int r = 0; r < size && wrong.empty(); r++) {
        if ((r == absent || r == also) && !late) continue;
        wrong = check_failure(group, r, TIMEOUT);
        const tpc_ar_report_t *report = group.report[(size_t)r];
        if (wrong.empty() && report->word != 0 &&
            ((report->peer != absent && report->peer != also) || report->epoch != group.epoch_of((size_t)healthy)))
            wrong = "rank " + std::to_string(r) + " reports rank " + std::to_string(report->peer) + ", epoch " +
                    std::to_string(report->epoch) + "; missing was rank " + std::to_string(absent);
        /* In the call that failed, a broadcast or gather may have got some of its data. */
        size_t first = (size_t)healthy + (r == absent ? 0 : 1);
        if (wrong.empty()) wrong = group.check_given_up(r, first, group.calls());
        if (wrong.empty()) wrong = group.check_epochs(r, group.calls());
    }
    uint64_t end_ns = (late ? arrival_ns : soonest_ms * 1000000) + 200000000 + (beats ? 2 * BEAT_NS : 0);
    if (wrong.empty() && result.clock_ns > end_ns)
        wrong = "the last wait ended after " + std::to_string(result.clock_ns / 1000000) +
                " ms; the first deadline was " + std::to_string(soonest_ms) + " ms";
    return wrong;
}

/* Check that ranks end by the deadline and name the one that is missing. */
static std::string missing(config_t &config) {
    return missing_calls(config, false);
}

/* Check the same in the ring. */
static std::string missing_ring(config_t &config) {
    return missing_calls(config, true);
}

/* Check that a job which is stopped whole while kernels wait does not fail of it: a rank that comes within the limit
 * after the stop is in time; of one that never comes the others say so, and not sooner; and when a job does not go on,
 * kernels end all the same. */
static std::string stopped(config_t &config) {
    static const uint32_t limits[] = {400, 700, 1600};
    random_t random = numbers(config);
    int size = random.pick(sizes), absent = random.between(0, size - 1), before = random.between(0, 2),
        kind = random.between(0, 7);
    bool comes = kind < 4, goes_on = kind < 7;
    uint32_t limit_ms = random.pick(limits);
    uint64_t stop_ms = random.below(limit_ms), resume_ms = stop_ms + (uint64_t)random.between(2100, 5000);
    if (!goes_on) stop_ms = 0, resume_ms = UINT64_MAX / 2000000;
    config.time_passes = true;
    begin(size, config);
    bool rings = random.chance(.2);
    group_t group(size, 64, draw_epoch(random), random, rings ? draw_ring(random) : tpc_ar_ring_t());
    for (int r = 0; r < size; r++) group.header(r)->timeout_ms = limit_ms;
    beat(group, random.chance(.3) ? 0xFFFFFFFFu - random.below(3600000 + 4000) : (uint32_t)random.bits() >> 2,
         stop_ms * 1000000, resume_ms * 1000000);
    for (int i = 0; i < before; i++) group.make(draw_call(group, rings));
    std::vector<call_t> calls((size_t)size, draw_call(group, rings));
    if (!comes) calls[(size_t)absent].count = SIZE_MAX;
    group.make_each(calls);
    if (comes) {
        delay_last(absent, (resume_ms + random.below(limit_ms - 50)) * 1000000);
        return run_healthy(group);
    }
    result_t result = run();
    if (result.outcome != FINISHED) return result.message;
    std::string wrong = group.check_results(0, (size_t)before);
    for (int r = 0; r < size && wrong.empty(); r++) {
        if (r == absent) continue;
        wrong = check_failure(group, r, TIMEOUT);
        const tpc_ar_report_t *report = group.report[(size_t)r];
        if (wrong.empty() && report->word != 0 && report->peer != absent)
            wrong = "rank " + std::to_string(r) + " reports rank " + std::to_string(report->peer) +
                    "; missing was rank " + std::to_string(absent);
        if (wrong.empty()) wrong = group.check_given_up(r, (size_t)before + 1, group.calls());
    }
    uint64_t soonest_ms = goes_on ? resume_ms + limit_ms : LONGEST_STOP_MS + limit_ms,
             ended_ms = result.clock_ns / 1000000;
    if (wrong.empty() && (ended_ms < soonest_ms || ended_ms > soonest_ms + 2 * BEAT_NS / 1000000 + 200))
        wrong = "the last wait ended after " + std::to_string(ended_ms) + " ms, want " + std::to_string(soonest_ms);
    return wrong;
}

/* Check that the host's word ends all waits, at whatever moment, also those of calls still queued. */
static std::string aborted(config_t &config) {
    random_t random = numbers(config);
    int size = random.pick(sizes), complete = random.between(0, 3), absent = random.between(0, size - 1);
    begin(size, config);
    bool rings = random.chance(.2);
    group_t group(size, random.pick(slots), draw_epoch(random), random, rings ? draw_ring(random) : tpc_ar_ring_t());
    for (int i = 0; i < complete; i++) group.make(draw_call(group, rings));
    for (int i = random.between(1, 4); i > 0; i--) {
        std::vector<call_t> calls((size_t)size, draw_call(group, rings));
        calls[(size_t)absent].count = SIZE_MAX;
        group.make_each(calls);
    }
    for (int r = 0; r < size; r++) {
        uint64_t *word = group.host_fail[(size_t)r];
        at_step((int64_t)random.below(1u << random.between(4, 16)),
                [=] { host_store(word, ABORTED | (uint64_t)(r + 1) << 32); });
    }
    result_t result = run();
    if (result.outcome != FINISHED) return result.message;
    std::string wrong;
    for (int r = 0; r < size && wrong.empty(); r++) {
        if (r == absent) continue;
        if (group.failure(r) != ABORTED)
            wrong = "rank " + std::to_string(r) + " failed with " + std::to_string(group.failure(r));
        if (group.report[(size_t)r]->word != 0) wrong = "rank " + std::to_string(r) + " reports a failure of its own";
        if (wrong.empty()) wrong = group.check_given_up(r, (size_t)complete + 1, group.calls());
        if (wrong.empty()) wrong = group.check_epochs(r, group.calls());
    }
    return wrong;
}

/* Check that a rank that makes another call is found out by all, with both calls, and that the calls after it are given
 * up. */
static std::string mismatch(config_t &config) {
    random_t random = numbers(config);
    int size = random.pick(sizes), odd = random.between(0, size - 1), healthy = random.between(0, 3),
        after = random.between(0, 3);
    bool rings = random.chance(.2);
    begin(size, config);
    group_t group(size, random.pick(slots), draw_epoch(random), random, rings ? draw_ring(random) : tpc_ar_ring_t());
    for (int i = 0; i < healthy; i++) group.make(draw_call(group, rings));
    std::vector<call_t> calls((size_t)size, draw_call(group, rings));
    call_t &other = calls[(size_t)odd];
    for (const call_t same = other; describe(other) == describe(same);) other = draw_call(group, rings);
    group.make_each(calls);
    for (int i = 0; i < after; i++) group.make(draw_call(group, rings));
    result_t result = run();
    if (result.outcome != FINISHED) return result.message;
    /* A slow rank may still be in the call before: it is broken off there. */
    std::string wrong = group.check_results(0, (size_t)std::max(healthy - 1, 0));
    for (int r = 0; r < size && wrong.empty(); r++) {
        wrong = check_failure(group, r, MISMATCH);
        const tpc_ar_report_t *report = group.report[(size_t)r];
        bool same = report->mine[0] == report->theirs[0] && report->mine[1] == report->theirs[1];
        if (report->word != 0 &&
            ((r == odd) == (report->peer == odd) || same || report->epoch != group.epoch_of((size_t)healthy)))
            wrong = "rank " + std::to_string(r) + " reports rank " + std::to_string(report->peer) +
                    "; another call made rank " + std::to_string(odd);
        if (wrong.empty()) wrong = group.check_given_up(r, (size_t)healthy + 1, group.calls());
        if (wrong.empty()) wrong = group.check_epochs(r, group.calls());
    }
    return wrong;
}

/* Check that a call which begins while another of the same rank runs is found out, and all ranks end. */
static std::string overlap(config_t &config) {
    random_t random = numbers(config);
    int size = random.pick(sizes), odd = random.between(0, size - 1);
    begin(size, config);
    group_t group(size, random.pick(slots), draw_epoch(random), random);
    group.header(odd)->running = (uint32_t)random.between(1, 2); /* the other one is only pretended */
    for (int i = random.between(1, 4); i > 0; i--) group.make(group.draw_call());
    result_t result = run();
    if (result.outcome != FINISHED) return result.message;
    std::string wrong;
    for (int r = 0; r < size && wrong.empty(); r++) {
        wrong = check_failure(group, r, OVERLAP);
        const tpc_ar_report_t *report = group.report[(size_t)r];
        if (wrong.empty() && (report->word != 0) != (r == odd))
            wrong = "rank " + std::to_string(r) + " has a wrong report";
        if (r == odd && (report->peer != odd || report->epoch != group.epoch_of(0))) wrong = "the report names another";
        /* A peer that had begun the next call may end it: all it waits for is sent. */
        if (wrong.empty()) wrong = group.check_given_up(r, r == odd ? 1 : 2, group.calls());
        if (wrong.empty()) wrong = group.check_epochs(r, group.calls());
    }
    return wrong;
}

const case_t cases[] = {{"dtypes", 60, dtypes},
                        {"mixed", 300, mixed},
                        {"wrap", 200, wrap},
                        {"payloads", 200, payloads},
                        {"broadcasts", 40, broadcasts},
                        {"missing", 400, missing},
                        {"stopped", 60, stopped},
                        {"aborted", 200, aborted},
                        {"mismatch", 200, mismatch},
                        {"overlap", 200, overlap},
                        {"ring", 60, ring},
                        {"waits", 60, waits},
                        {"missing_ring", 40, missing_ring},
                        {"alone", 200, alone},
                        {"many", 12, many},
                        {"norms", 80, norms},
                        {"missing_norms", 30, missing_norms}};
const int case_count = sizeof(cases) / sizeof(cases[0]);
