// What a story takes for granted. Values; thread-safe (free functions).
#pragma once

#include <set>
#include <string>
#include <vector>

namespace ringmaster::coordinator {

// The commands that `given ...` stands for, in their order; `attached` are the workers that are
// there already. Of any command itself, but for
//
//   given running j0001 on=a,b min=2 joined=yes step=4 checkpoint=2,4
//
// which attaches those that are not there (cores=, class=), submits the job with what else is said,
// and starts it; `key=` and `generation=` are k1 and 1.1 for j0001 unless they are said. Behind
// that, in the order in which they stand: every member has joined its ring, has applied step 4, and
// the first two have a checkpoint of each of these steps.
[[nodiscard]] std::vector<std::string> Expand(const std::string& given,
                                              const std::set<std::string>& attached);

}  // namespace ringmaster::coordinator
