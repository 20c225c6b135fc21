// A library that is no backend.
extern "C" int ringmaster_nothing() { return 0; }
