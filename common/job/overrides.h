// `--set a.b=c` on a job file's tree, before its types are known. Thread-safe (free function).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/yaml/yaml_tree.h"

namespace ringmaster::job {

// Whether a path may be removed that is not there.
using CheckAbsent =
    std::function<Status(const std::vector<std::string>& path, const std::string& where)>;

// `flag` says in errors what the override was given to. Sets the value at a path of keys and list
// positions (`augment.0.random_crop.padding=2`) to a YAML value. Missing mappings are made; a
// position one past the end of a list appends; `a.b=null` removes the key or the element, which
// without `absent` need not be there.
[[nodiscard]] Status ApplyOverride(const std::string& override, YamlNode* root,
                                   const std::string& flag = "--set",
                                   const CheckAbsent& absent = nullptr);

}  // namespace ringmaster::job
