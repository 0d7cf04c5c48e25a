/* SPDX-License-Identifier: Apache-2.0 */
/** This process and this host: identities, randomness, descriptors of processes. */
#ifndef TPC_BOOTSTRAP_HOST_H
#define TPC_BOOTSTRAP_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/** Fill bytes from the kernel's random source. Fails: IO. */
tpcomm_status_t tpc_random(void *bytes, size_t count);

/** A random number that this process alone has; a forked child gets another one. Fails: IO. */
tpcomm_status_t tpc_process_token(uint64_t *token_p);

/** Descriptor that becomes readable when a process ends; -1 where the kernel or a filter does not allow it, or pid is
 * 0. */
int tpc_pidfd_open(int32_t pid);

/** Whether the process behind a pidfd has ended, or does so within ms; false for -1. */
bool tpc_pidfd_ended(int pidfd, int ms);

#endif
