/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers: stacks, and the switch between them. x86-64. */
#include <stdlib.h>
#include <sys/mman.h>

#include "internal.h"

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

fiber_t *current;

static const size_t GUARD_BYTES = 4096;
static const size_t STACK_BYTES = ADDRESS_SANITIZER ? 128 << 10 : 32 << 10;
static const size_t STACKS_AT_ONCE = 64;

/* Never destroyed: fibers that were left in the middle may still be in use when the program ends. */
static std::vector<fiber_t *> &all = *new std::vector<fiber_t *>, &idle = *new std::vector<fiber_t *>;
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

/* Not instrumented: its frame is never left. */
[[noreturn]] __attribute__((no_sanitize("address"))) static void fiber_main() {
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
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
        fiber->stack = stack_new();
        all.push_back(fiber);
    } else {
        fiber = idle.back();
        idle.pop_back();
        if (fiber->state != ENDED)
            __asan_unpoison_memory_region(fiber->stack, STACK_BYTES); /* it was left in the middle */
    }
    /* As if fiber_main had been called by nobody and left by hostrun_switch: six registers and where to go on. */
    void **top = (void **)(fiber->stack + STACK_BYTES);
    *--top = nullptr;
    *--top = (void *)fiber_main;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    fiber->stack_pointer = top;
    fiber->fake_stack = nullptr;
    return fiber;
}

void fibers_reset() {
    idle = all;
    current = nullptr;
}

void fiber_enter(fiber_t *fiber) {
    current = fiber;
    threadIdx = fiber->thread_index;
    blockIdx = fiber->block->block_index;
    blockDim = fiber->block->grid->launch.block;
    gridDim = fiber->block->grid->launch.grid;
    __sanitizer_start_switch_fiber(&scheduler_fake_stack, fiber->stack, STACK_BYTES);
    hostrun_switch(&scheduler_pointer, fiber->stack_pointer);
    __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr);
    current = nullptr;
}

void fiber_leave() {
    fiber_t *fiber = current;
    __sanitizer_start_switch_fiber(fiber->state == ENDED ? nullptr : &fiber->fake_stack, scheduler_stack,
                                   scheduler_stack_bytes);
    hostrun_switch(&fiber->stack_pointer, scheduler_pointer);
    __sanitizer_finish_switch_fiber(fiber->fake_stack, nullptr, nullptr);
}

} // namespace hostrun
