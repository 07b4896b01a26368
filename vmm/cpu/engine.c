/* The engine interface: which implementation, and its functions (engine_calls.def). The one place
 * that knows them all.
 */
#include "cpu/engine_ops.h"

#include <errno.h>
#include <string.h>

static const char *const names[] = {[ENGINE_DBT] = "dbt", [ENGINE_KVM] = "kvm"};

const char *engine_kind_name(enum engine_kind kind)
{
    return names[kind];
}

int engine_kind_find(const char *name)
{
    for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
        if (!strcmp(names[i], name))
            return (int)i;
    return -1;
}

enum engine_kind engine_best(struct err *why)
{
    return engine_kvm_exact(why) ? ENGINE_DBT : ENGINE_KVM;
}

int engine_create(struct engine **out, const struct engine_config *config, struct err *err)
{
    if (config->parts.cpus > 1 && config->paranoid.on)
        return err_set(err, -ENOTSUP, "dbt,paranoid follows one CPU, and the machine has %u",
                       config->parts.cpus);
    return config->kind == ENGINE_KVM ? engine_kvm_create(out, config, core_create, err)
                                      : engine_dbt_create(out, config, err);
}

void engine_destroy(struct engine *e)
{
    if (e)
        e->ops->destroy(e);
}

#define ASK(result, name, parameters, arguments)                                                   \
    result engine_##name parameters                                                                \
    {                                                                                              \
        return e->ops->name arguments;                                                             \
    }
#define TELL(name, parameters, arguments)                                                          \
    void engine_##name parameters                                                                  \
    {                                                                                              \
        e->ops->name arguments;                                                                    \
    }
#define OWN(result, name, parameters)
#include "cpu/engine_calls.def"
