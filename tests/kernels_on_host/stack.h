/* SPDX-License-Identifier: Apache-2.0 */
/** Stacks, and the switch between them: what the threads of kernels run on. One thread of the process enters them. */
#ifndef TPC_KERNELS_ON_HOST_STACK_H
#define TPC_KERNELS_ON_HOST_STACK_H

#include <vector_types.h>

namespace hostrun {

struct stack_user_t {
    char *stack = nullptr;
    void *stack_pointer, *fake_stack;
};

/** What a kernel's thread knows of its place. */
struct place_t {
    uint3 thread, block;
    dim3 threads, blocks;
};

/** Its next entry begins main, which must not return; gives it a stack the first time. */
void stack_begin(stack_user_t *user, void (*main)());
/** It was left in the middle, and its stack will be used anew. */
void stack_forget(stack_user_t *user);
/** Run it until it leaves. */
void stack_enter(stack_user_t *user, const place_t &place);
/** Back to who entered it; returns when it is entered again. for_good: it will not be. */
void stack_leave(stack_user_t *user, bool for_good);
/** At the beginning of main. */
void stack_entered_first();

} // namespace hostrun

#endif
