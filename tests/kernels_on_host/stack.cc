/* SPDX-License-Identifier: Apache-2.0 */
/* x86-64. */
#include <stdlib.h>
#include <sys/mman.h>

#include "stack.h"

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define ADDRESS_SANITIZER 1
#else
/* Nobody to tell of a switch. */
#define ADDRESS_SANITIZER                                       0
#define __sanitizer_start_switch_fiber(save_p, stack, bytes)    ((void)(save_p), (void)(stack), (void)(bytes))
#define __sanitizer_finish_switch_fiber(save, stack_p, bytes_p) ((void)(save), (void)(stack_p), (void)(bytes_p))
#define __asan_unpoison_memory_region(at, bytes)                ((void)(at), (void)(bytes))
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

/* Save the registers that a call preserves on this stack, and go on where `to` left off. */
extern "C" void hostrun_switch(void **save_p, void *to);
asm(R"(
.text
.globl hostrun_switch
.type hostrun_switch, @function
hostrun_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size hostrun_switch, . - hostrun_switch
)");

namespace hostrun {

static const size_t GUARD_BYTES = 4096;
static const size_t STACK_BYTES = ADDRESS_SANITIZER ? 128 << 10 : 32 << 10;
static const size_t STACKS_AT_ONCE = 64;

static void *scheduler_pointer, *scheduler_fake_stack;
static const void *scheduler_stack;
static size_t scheduler_stack_bytes;

/* A page below each stack ends what overflows it. */
static char *stack_new() {
    static char *next;
    static size_t left;
    if (left == 0) {
        void *memory = mmap(nullptr, STACKS_AT_ONCE * (GUARD_BYTES + STACK_BYTES), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) abort();
        next = (char *)memory;
        left = STACKS_AT_ONCE;
    }
    if (mprotect(next, GUARD_BYTES, PROT_NONE) != 0) abort();
    char *stack = next + GUARD_BYTES;
    next += GUARD_BYTES + STACK_BYTES;
    left--;
    return stack;
}

void stack_begin(stack_user_t *user, void (*main)()) {
    if (user->stack == nullptr) user->stack = stack_new();
    /* As if main had been called by nobody and left by hostrun_switch: six registers and where to go on. */
    void **top = (void **)(user->stack + STACK_BYTES);
    *--top = nullptr;
    *--top = (void *)main;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    user->stack_pointer = top;
    user->fake_stack = nullptr;
}

void stack_forget(stack_user_t *user) {
    __asan_unpoison_memory_region(user->stack, STACK_BYTES);
}

__attribute__((no_sanitize("address"))) void stack_entered_first() {
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
}

void stack_enter(stack_user_t *user, const place_t &place) {
    threadIdx = place.thread;
    blockIdx = place.block;
    blockDim = place.threads;
    gridDim = place.blocks;
    __sanitizer_start_switch_fiber(&scheduler_fake_stack, user->stack, STACK_BYTES);
    hostrun_switch(&scheduler_pointer, user->stack_pointer);
    __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr);
}

void stack_leave(stack_user_t *user, bool for_good) {
    __sanitizer_start_switch_fiber(for_good ? nullptr : &user->fake_stack, scheduler_stack, scheduler_stack_bytes);
    hostrun_switch(&user->stack_pointer, scheduler_pointer);
    __sanitizer_finish_switch_fiber(user->fake_stack, nullptr, nullptr);
}

} // namespace hostrun
