/* SPDX-License-Identifier: Apache-2.0 */
/* The harness' fibers: a kernel's threads, each on a stack of its own. */
#include <stdlib.h>

#include "internal.h"

namespace hostrun {

fiber_t *current;

/* Never destroyed: fibers that were left in the middle may still be in use when the program ends. */
static std::vector<fiber_t *> &all = *new std::vector<fiber_t *>, &idle = *new std::vector<fiber_t *>;

/* Not instrumented: its frame is never left. */
[[noreturn]] __attribute__((no_sanitize("address"))) static void fiber_main() {
    stack_entered_first();
    fiber_t *fiber = current;
    fiber->block->grid->launch.thread();
    settle(fiber);
    fiber_ended(fiber);
    idle.push_back(fiber);
    fiber_leave();
    abort();
}

fiber_t *fiber_new() {
    fiber_t *fiber;
    if (idle.empty()) {
        fiber = new fiber_t();
        all.push_back(fiber);
    } else {
        fiber = idle.back();
        idle.pop_back();
        if (fiber->state != ENDED) stack_forget(fiber);
    }
    stack_begin(fiber, fiber_main);
    return fiber;
}

void fibers_reset() {
    idle = all;
    current = nullptr;
}

void fiber_enter(fiber_t *fiber) {
    const launch_t &launch = fiber->block->grid->launch;
    current = fiber;
    stack_enter(fiber, {fiber->thread_index, fiber->block->block_index, launch.block, launch.grid});
    current = nullptr;
}

void fiber_leave() {
    stack_leave(current, current->state == ENDED);
}

} // namespace hostrun
