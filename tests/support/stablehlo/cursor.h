// A place in the text of a module: skips white space and comments, knows line and column, and says
// what it found where something else was expected. Thread-compatible.
#pragma once

#include <string>
#include <string_view>

#include "common/status.h"
#include "tests/support/stablehlo/syntax.h"

namespace ringmaster::testing::stablehlo {

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  // Of the next thing that is not white space.
  [[nodiscard]] Position position();
  [[nodiscard]] bool AtEnd();
  // Whether the text goes on with `token`; words are taken whole, so that `array` does not match
  // `arrays`.
  [[nodiscard]] bool Sees(std::string_view token);
  bool Accept(std::string_view token);
  Status Expect(std::string_view token);
  // As Accept, with nothing skipped before it.
  bool AcceptHere(std::string_view token);

  StatusOr<std::string> Word();            // main, tf.aliasing_output
  StatusOr<std::string> Name(char sigil);  // behind % or @; names of digits are fine
  StatusOr<std::string> Quoted();
  // A number as it stands there: -12, 0.5, 1.0e-5, 0xFF800000.
  StatusOr<std::string> Number();
  StatusOr<int64_t> Integer();
  StatusOr<TensorType> Tensor();     // tensor<2x3xf32>
  StatusOr<Type> ElementTypeHere();  // f32

  [[nodiscard]] Status Unexpected(std::string_view expected);

 private:
  void Skip();
  [[nodiscard]] char Here() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  std::string_view TakeWhile(bool (*belongs)(char));

  const std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  size_t line_begin_ = 0;
};

}  // namespace ringmaster::testing::stablehlo
