// A shared library that is no plugin: it lacks the symbol.
extern "C" __attribute__((visibility("default"))) int PjrtNoSymbol() { return 0; }
