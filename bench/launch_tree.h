/* SPDX-License-Identifier: Apache-2.0 */
/** The processes that ranks started: members of the ranks' process groups, and orphans that came to us as their
 * subreaper. */
#ifndef BENCH_LAUNCH_TREE_H
#define BENCH_LAUNCH_TREE_H

#include <stdint.h>
#include <sys/types.h>

/**
 * Send a signal (0: none) to every living process that is our child or in one of the groups, and return how many there
 * are. Ranks must not have been reaped, so that no group's number can have a new owner. Without /proc only the groups
 * are reached, and 0 is returned once they are empty.
 */
int bench_tree_signal(const pid_t *groups, int32_t count, int signal);

#endif
