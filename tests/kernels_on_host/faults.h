/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The planted faults: TPC_FAULT(name) in the kernels, the constant false in every other build. A name that is missing
 * here does not compile, and the mutants test runs every row, so each stays caught.
 *
 * X(name, case that catches it, modes that must: W weak memory, R race detector, A g++ with AddressSanitizer)
 */
#ifndef TPC_KERNELS_ON_HOST_FAULTS_H
#define TPC_KERNELS_ON_HOST_FAULTS_H

#define TPC_FAULTS(X)                                                                                                  \
    X(one_parity, "mixed", "WRA")              /* K = 1: one half of the workspace for all epochs */                   \
    X(no_rearm, "mixed", "WRA")                /* slots stay full */                                                   \
    X(late_rearm, "mixed", "WRA")              /* slots become EMPTY in the next call */                               \
    X(epoch_of_grid_only, "mixed", "WRA")      /* epoch words beyond the grid stay */                                  \
    X(epoch_repeats_parity, "wrap", "WRA")     /* the wrap leaves out 0xFFFFFFFF alone */                              \
    X(epoch_may_be_empty, "wrap", "WRA")       /* 0xFFFFFFFF is an epoch too */                                        \
    X(packet_dropped, "mixed", "WRA")          /* one packet is never sent */                                          \
    X(flag_dropped, "mixed", "WRA")            /* nor one flag packet */                                               \
    X(one_word_tested, "mixed", "WRA")         /* of a sentinel packet's four */                                       \
    X(one_flag_tested, "mixed", "WRA")         /* of a flag packet's two */                                            \
    X(empty_word_sent, "payloads", "WRA")      /* a NaN that looks EMPTY is not replaced */                            \
    X(no_header, "mixed", "WRA")               /* call headers are not sent */                                         \
    X(header_not_awaited, "broadcasts", "WRA") /* calls are not complete */                                            \
    X(tail_stored_whole, "mixed", "WRA")       /* beyond the end of out */                                             \
    X(epoch_unguarded, "mixed", "WRA")         /* epoch words advance while others of the block read them */           \
    X(late_dependency, "mixed", "WR")          /* dependent launch: pushes before its predecessor has ended */         \
    X(phases_share_slots, "mixed", "WRA")      /* two-shot: results travel through the parts' slots */                 \
    X(result_kept_back, "mixed", "WRA")        /* two-shot: an owner does not send one result */                       \
    X(tail_dropped, "mixed", "WRA")            /* what is behind the last whole vector stays at home */                \
    X(tail_of_all_blocks, "mixed", "WRA")      /* or is taken by every block */                                        \
    X(ring_tail_dropped, "ring", "WRA")        /* the ring's: it stays at home */                                      \
    X(ring_too_short, "ring", "WRA")           /* one slot fewer than the proof wants */                               \
    X(ring_not_released, "ring", "W")          /* flags are stored without a fence */                                  \
    X(ring_not_acquired, "ring", "W")          /* flags are seen by relaxed loads alone */                             \
    X(ring_signals_early, "ring", "WRA")       /* a flag goes out before all of a chunk is pushed */                   \
    X(ring_wait_alone, "ring", "WRA")          /* threads that do not look at flags do not meet those that do */       \
    X(ring_count_ends, "ring", "WRA")          /* chunks are counted as if the count never wrapped */                  \
    X(norm_tree_upward, "norms", "WRA")        /* a group's squares are added in another order */                      \
    X(norm_no_barrier, "norms", "WRA")         /* a warp reads the groups' sums before they are there */               \
    X(norm_row_dropped, "norms", "WRA")        /* a row is not pushed to its last reader */                            \
    X(norm_owner_shifted, "norms", "WRA")      /* two-shot: rows go to the rank after their owner */                   \
    X(norm_residual_dropped, "norms", "WRA")   /* what is normalised lacks the residual */                             \
    X(norm_results_one_half, "norms", "WRA")   /* two-shot: results of all epochs travel through one half */           \
    X(norm_late_dependency, "norms", "WR")     /* the same in calls with a norm */                                     \
    X(sum_cut_off, "norms", "WRA")             /* a sum is not rounded */                                              \
    X(wait_of_one_peer, "waits", "WRA")        /* what is noted is the first thread's wait */                          \
    X(half_counted_out, "mixed", "WRA")        /* a call leaves only half of itself behind */                          \
    X(overlap_unseen, "overlap", "WRA")        /* two calls of a rank at once */                                       \
    X(victim_named, "missing", "WRA")  /* a wait for a rank that itself waits for the missing one reports first */     \
    X(stop_not_seen, "stopped", "WRA") /* waits end by the device's clock, which goes on while the job is stopped */   \
    X(beat_not_awaited, "stopped", "WRA") /* the hosts' pulse is believed as it stands */                              \
    X(report_not_claimed, "missing", "R") /* many threads write one report */                                          \
    X(peers_not_told, "missing", "WRA")   /* of a failure */

enum tpc_fault_t {
    TPC_FAULT_none,
#define TPC_FAULT_ENUM(name, test, modes) TPC_FAULT_##name,
    TPC_FAULTS(TPC_FAULT_ENUM)
#undef TPC_FAULT_ENUM
};

/** The fault that is planted now. */
extern tpc_fault_t tpc_planted_fault;

#define TPC_FAULT(name) (tpc_planted_fault == TPC_FAULT_##name)

#endif
