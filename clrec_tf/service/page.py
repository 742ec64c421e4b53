"""The page on which a person tries histories out, and the search for items that it needs."""
import pathlib

PAGE = (pathlib.Path(__file__).parent / "page.html").read_text(encoding="utf-8")


def item_finder():
    """A function (bundle, query, limit) -> items whose id or title holds the query, the most popular first."""
    lowered = {}

    def find(bundle, query, limit):
        if lowered.get("bundle") is not bundle:
            titles = [""] * len(bundle.item_ids) if bundle.titles is None else bundle.titles.tolist()
            lowered.update(bundle=bundle, texts=[f"{item}\n{title}".lower() for item, title in
                                                 zip(bundle.item_ids.tolist(), titles)])
        found, query = [], query.lower()
        for place, text in enumerate(lowered["texts"]):
            if query in text:
                title = None if bundle.titles is None else bundle.titles[place]
                found.append(dict(id=bundle.item_ids[place].item(), title=title))
                if len(found) == limit:
                    break
        return {"items": found}
    return find
