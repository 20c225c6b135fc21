#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {

std::vector<OpCase> GlobalAveragePoolCases() {
  return {
      {"odd image", GlobalAveragePool{}, {{{2, 3, 5, 3}}}},
      {"odd channels", GlobalAveragePool{}, {{{3, 5, 7, 19}}}},
      {"many places", GlobalAveragePool{}, {{{2, 20, 17, 40}}}},
      {"one place, many channels", GlobalAveragePool{}, {{{2, 1, 1, 600}}}},
      {"dimensions kept", GlobalAveragePool{.keep_dims = true}, {{{2, 3, 5, 3}}}},
      {"dimensions kept, odd channels", GlobalAveragePool{.keep_dims = true}, {{{3, 5, 7, 19}}}},
      {"odd channels", GlobalAveragePoolGradient{}, {{{3, 19}}}, {{{3, 5, 7, 19}}}},
      {"dimensions kept", GlobalAveragePoolGradient{}, {{{3, 1, 1, 19}}}, {{{3, 5, 7, 19}}}},
      {"many places", GlobalAveragePoolGradient{}, {{{2, 40}}}, {{{2, 20, 17, 40}}}},
  };
}

}  // namespace ringmaster::graph
