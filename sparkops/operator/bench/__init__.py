"""The verb `bench`: what runs, what is kept of it, how runs compare, and the page that shows them."""
