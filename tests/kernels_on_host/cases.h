/* SPDX-License-Identifier: Apache-2.0 */
/** The scenarios that kernels are run through; each seed is another one of its kind. */
#ifndef TPC_KERNELS_ON_HOST_CASES_H
#define TPC_KERNELS_ON_HOST_CASES_H

#include <string>

#include "hostrun.h"

/** Runs one seed. config is as drawn; the case may change it. Returns "" or what is wrong. */
struct case_t {
    const char *name;
    int seeds; /**< that CI runs */
    std::string (*run)(hostrun::config_t &config);
};

/** norms.cc: calls with a norm, and the norm alone. */
std::string norms(hostrun::config_t &config);
std::string missing_norms(hostrun::config_t &config);

/** alone.cc: one rank whose inbox is filled. */
std::string alone(hostrun::config_t &config);

extern const case_t cases[];
extern const int case_count;

#endif
