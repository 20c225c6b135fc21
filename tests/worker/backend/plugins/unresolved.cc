// A library that lacks a symbol, as one whose vendor library is too old.
extern "C" int ringmaster_defined_nowhere();
extern "C" int ringmaster_nothing() { return ringmaster_defined_nowhere(); }
