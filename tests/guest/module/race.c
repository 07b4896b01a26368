// SPDX-License-Identifier: MIT
/*
 * A race in a kernel module, for hunts (tests/suite/hunt.py): what one thread has found to be there
 * another one takes away before it is used, a window of some instructions in each of 30 rounds.
 * Loading runs it: an oops of NULL, or "race: fine".
 */
#include <linux/completion.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/module.h>

#define ROUNDS 30

struct item {
    int value[8];
};

static struct item *shared;
static struct item item;
static atomic_t there;
static DECLARE_COMPLETION(one_done);
static DECLARE_COMPLETION(other_done);
static int sum;

static void together(void)
{
    atomic_inc(&there);
    while (atomic_read(&there) < 2)
        cpu_relax();
}

static int takes_away(void *done)
{
    int i;

    together();
    for (i = 0; i < ROUNDS; i++) {
        WRITE_ONCE(shared, &item);
        WRITE_ONCE(item.value[i % 8], i);
        WRITE_ONCE(shared, NULL);
    }
    complete(done);
    return 0;
}

static int looks(void *done)
{
    int i;

    together();
    for (i = 0; i < ROUNDS; i++)
        if (READ_ONCE(shared))
            sum += READ_ONCE(READ_ONCE(shared)->value[7]);
    complete(done);
    return 0;
}

static struct task_struct *begin(int (*does)(void *), struct completion *done, unsigned int cpu)
{
    struct task_struct *t = kthread_create(does, done, "race/%u", cpu);

    if (!IS_ERR(t))
        kthread_bind(t, cpu);
    return t;
}

static int __init race_init(void)
{
    struct task_struct *one, *other;

    if (num_online_cpus() < 2)
        return -ENODEV;
    one = begin(takes_away, &one_done, 0);
    if (IS_ERR(one))
        return PTR_ERR(one);
    other = begin(looks, &other_done, 1);
    if (IS_ERR(other)) {
        kthread_stop(one);
        return PTR_ERR(other);
    }
    wake_up_process(one);
    wake_up_process(other);
    wait_for_completion(&one_done);
    wait_for_completion(&other_done);
    pr_info("race: fine\n");
    return 0;
}

static void __exit race_exit(void)
{
}

module_init(race_init);
module_exit(race_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("A race, for tests");
