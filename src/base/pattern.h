/* SPDX-License-Identifier: Apache-2.0 */
/** Names that differ from process to process: %h host, %p process, %r rank in a variable's value. */
#ifndef TPC_BASE_PATTERN_H
#define TPC_BASE_PATTERN_H

#include <stddef.h>

#include "tpcomm.h"

/**
 * Put host, process and rank into a pattern; "%%" is a percent sign.
 * @param variable  for the error's text.
 * @param rank      negative: "x" stands for it.
 * Fails: CONFIG (another letter after %; more than bytes).
 */
tpcomm_status_t tpc_pattern_expand(const char *variable, const char *pattern, int32_t rank, char *text_p, size_t bytes);

#endif
