"""Vizsla in other frameworks: one file each, imported by its own name, as in `vizsla.adapters.langchain`.

Each takes any Retriever, or a location that `vizsla.open` opens: the folder of an index, the address of a server or of
a cluster. Those of LangChain, LlamaIndex and Haystack also have stores, which write to any Collection. The extra of the
same name installs the framework: `pip install "vizsla[langchain]"`.
"""
