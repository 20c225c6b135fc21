// Numbers of generations: never the same twice, as the term is durable. Owned by Logic, loop thread
// only.
#pragma once

#include "common/ids.h"

namespace ringmaster::coordinator {

class GenerationSource {
 public:
  void BeginTerm(uint64_t term) { newest_ = {term, 0}; }
  uint64_t term() const { return newest_.term; }
  GenerationId Next() {
    ++newest_.counter;
    return newest_;
  }

 private:
  GenerationId newest_;
};

}  // namespace ringmaster::coordinator
